// A provider of OpenID Connect for test_oidc.py: node provider.mjs PORT REDIRECT SECRET; prints a line when it listens.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [port, redirect, secret] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const people = {
  ana: { email: "ana@h.org", email_verified: true, groups: ["doctors"] },
  bo: { email: "bo@h.org", email_verified: true, groups: ["doctors", "data-stewards"] },
  eve: { email: "ana@h.org", email_verified: false, groups: [] }, // states ana's address, unverified
  joe: { email: "joe@h.org", email_verified: true, groups: ["visitors"] },
};
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "cape-desk",
      client_secret: secret,
      redirect_uris: [redirect],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
    { client_id: "another", client_secret: secret, redirect_uris: [redirect] },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
  scopes: ["openid", "email", "groups"],
  cookies: { keys: ["only for a test"] },
  pkce: { required: () => true },
  findAccount: (_, id) =>
    id in people && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
});
createServer(provider.callback()).listen(Number(port), "127.0.0.1", () => console.log(`listens at ${issuer}`));
