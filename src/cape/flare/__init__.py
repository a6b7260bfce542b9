"""The same protocol across machines, over NVFLARE (an extra): kits, the processes of aggregator and sites,
limits on what they answer, restarts; systemd units and containers, which keep the process that reads rows off
the network.

Not here: decisions. What is asked, allowed, paid for, masked and added up is decided in `cape.site`,
`cape.secagg` and `cape.coordinator`.

The protocol machines do not change. NVFLARE gives long-lived processes, mutual TLS and a way to move bytes:

    coordinator, `cape submit`  holds the key that signs requests; connects to the aggregator only
    aggregator, `cape serve`    `controller.Aggregator`: forwards bytes and adds up; holds no secret
    a site's link, `cape join`  `executor.Site`: carries bytes to the socket of the site's daemon

Nothing is imported here: the package installs without NVFLARE, and `kits`, `link` and the classes that
NVFLARE loads by their path need the extra `flare`.
"""
