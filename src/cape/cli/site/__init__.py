"""`cape site`: a site's key, policy, inbox and ledger, for its data steward. None of it needs a network.

Not here: what a steward may do (`site/admin`).
"""

from __future__ import annotations

import typer

from cape.cli.lazy_group import Command, LazyGroup

__all__ = ["site"]


class _Commands(LazyGroup):
    """All commands, in the order of `cape site --help`."""

    listing = (
        Command(
            "init",
            "cape.cli.site.keys",
            "Make a site's folder: a key, a policy to edit, and an empty ledger. Overwrites nothing.",
        ),
        Command(
            "export-key",
            "cape.cli.site.keys",
            "Print this site's public key, as a file for coordinators and for the other sites.",
        ),
        Command(
            "trust",
            "cape.cli.site.keys",
            "Write a public key into the policy. Compare the fingerprint by telephone first.",
        ),
        Command(
            "revoke",
            "cape.cli.site.keys",
            "Remove a public key from the policy: nothing is answered to its holder, or together "
            "with it, any more.",
        ),
        Command(
            "serve",
            "cape.cli.site.serve",
            "Answer studies for a site, until Ctrl-C. Holds rows, key and ledger, and needs no network.",
        ),
        Command(
            "status",
            "cape.cli.site.policy",
            "Show a site's state: its key, policy, trusted keys, waiting studies, and whether a link "
            "is connected.",
        ),
        Command(
            "check",
            "cape.cli.site.check",
            "Check the policy against the data, and against a study. Nothing is spent or sent.",
        ),
        Command(
            "policy",
            "cape.cli.site.policy",
            "Print the policy, site.toml; or show how a new text differs, and put it in force if it "
            "is valid.",
        ),
        Command(
            "inbox",
            "cape.cli.site.inbox",
            "Show the studies that wait: the coordinator, the verdicts, the cost, and the budget left after.",
        ),
        Command(
            "approve",
            "cape.cli.site.inbox",
            "Approve a study that waits: it is answered as far as the policy allows. Without STUDY, "
            "show what waits.",
        ),
        Command(
            "refuse",
            "cape.cli.site.inbox",
            "Refuse a study: one that waits, or one that was approved and still runs.",
        ),
        Command(
            "ask",
            "cape.cli.site.inbox",
            "Ask the coordinator of a study that waits. The question leaves the site: say nothing "
            "about rows in it.",
        ),
        Command(
            "ledger",
            "cape.cli.site.ledger",
            "Show every release: its time, coordinator, analysis and mu, and the epsilon of all together.",
        ),
        Command(
            "log",
            "cape.cli.site.policy",
            "Print the last lines of the site's log: every decision, and details of every refusal.",
        ),
        Command(
            "notify",
            "cape.cli.site.notify",
            "Send notices of what happens at a site, as \\[notify] in site.toml says, until Ctrl-C.",
        ),
        Command(
            "settle",
            "cape.cli.site.heads",
            "Show signed lines that the ledger lacks, as after a restored backup; --yes charges them.",
        ),
        Command(
            "verify",
            "cape.cli.site.heads",
            "Check a ledger: chain, signatures, times and totals, and heads if given.",
        ),
        Command(
            "backup",
            "cape.cli.site.backup",
            "Write the site's folder (key, policy, ledger, decisions and log, not rows) into a new tar file.",
        ),
        Command(
            "upgrade",
            "cape.cli.site.upgrade",
            "Take over the ledger of an earlier version of cape: every line of it is charged in a new one.",
        ),
    )


site = typer.Typer(
    cls=_Commands,
    name="site",
    help="""A site's policy, keys and ledger: what its data steward allows, and what was released.

    If the site's daemon runs, these commands ask it: through the socket in the site's folder, or the one that
    --socket or CAPE_ADMIN names. Otherwise they work on the folder.

    Example: [bold]cape site init our-site --name cleveland[/bold]

    Example: [bold]cape site ledger --site our-site[/bold]""",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
