"""What a steward reads and changes, in the daemon or over its socket: inbox, policy, ledger, log; notices
by mail and webhook; backups.

Not here: pages (`desk/site`), commands (`cli/site`), and rules, which are in `site/decide`.

Claim. Only the daemon's own user, root and the stewards whom the operator named can read or change anything
here. No answer contains a cell of a table, a private key or a password of the policy.
Reason. `cape.core.unix.Server` asks the kernel who connects before it reads a byte. A request is one of a few
strict structs, bounded in size. The desk returns names, numbers of cells, verdicts, and sentences that never
contain cells: of policy, ledger, log and `DataError`. Passwords in the policy are hidden (`hidden`).
Tested in tests/unit/site/test_admin.py and test_desk.py.

`Desk` works on a site's folder, `Client` on a socket; they have the same methods, and return the structs of
`cape.site.admin.data`. `serve` puts a desk behind a socket.
"""

from cape.site.admin.desk import Desk
from cape.site.admin.wire import SOCKET, Client, serve

__all__ = ["SOCKET", "Client", "Desk", "serve"]
