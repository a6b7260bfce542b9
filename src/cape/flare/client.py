"""`python -m cape.flare.client`: NVFLARE's client, guarded. `cape join` starts it."""

from cape.flare.guard import run

if __name__ == "__main__":
    run("nvflare.private.fed.app.client.client_train")
