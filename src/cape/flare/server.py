"""`python -m cape.flare.server`: NVFLARE's server, with limits on what one site can use of it."""

import runpy

from cape.flare.limits import limit

if __name__ == "__main__":
    limit()
    runpy.run_module("nvflare.private.fed.app.server.server_train", run_name="__main__", alter_sys=True)
