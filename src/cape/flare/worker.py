"""`python -m cape.flare.worker`: the process of a job at a site, guarded. The site's client starts it."""

from cape.flare.guard import run

if __name__ == "__main__":
    run("nvflare.private.fed.app.client.worker_process")
