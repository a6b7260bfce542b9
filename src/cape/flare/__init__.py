"""The same protocol across machines: each site's link and the aggregator run as NVFLARE processes.

The protocol machines do not change. NVFLARE gives long-lived processes, mutual TLS and a way to move bytes;
what is asked, allowed, paid for, masked and added up is decided in `cape.site`, `cape.secagg` and
`cape.coordinator`. The parties:

    coordinator (cape submit)   holds the key that signs requests; connects to the aggregator only aggregator
    (cape serve)     `controller.Aggregator`: forwards bytes and adds up; holds no secret a site's
    link (cape join)   `executor.Site`: carries bytes to the socket of the site's daemon, which decides

Nothing is imported here: the package installs without NVFLARE, and `kits`, `link` and the classes that
NVFLARE loads by their path need the extra `flare`.
"""
