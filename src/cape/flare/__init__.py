"""One more driver of the same protocol: links of sites and the aggregator as NVFLARE processes.

The protocol machines do not change. NVFLARE gives long-lived processes, mutual TLS and a way to move bytes;
what is asked, allowed, paid for, masked and added up is decided in `cape.steward`, `cape.secagg` and
`cape.coordinator`. Who is who:

    coordinator (cape submit)   holds the key that signs requests; talks to the aggregator only
    aggregator (cape serve)     `controller.Aggregator`: passes bytes on and adds up; has no key and no secret
    a site's link (cape join)   `executor.Site`: carries bytes to the socket of the daemon, which decides

Nothing is imported here: the package installs without NVFLARE, and `kits`, `link` and the classes that
NVFLARE loads by their path need the extra `flare`.
"""
