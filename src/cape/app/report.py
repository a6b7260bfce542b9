"""The report of a study: one self-contained HTML file, for those who decide and those who compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from cape import __version__
from cape.app import words
from cape.app.certificate import certificate
from cape.app.results import Answered, Results
from cape.data import Number
from cape.engine.schemes import Cost
from cape.show import Table, html
from cape.show.plain import plain, to_json

__all__ = ["page"]


def page(results: Results) -> str:
    """Return the report as an HTML page. It contains released numbers and public facts only.

    Results come first, then what is guaranteed and what it cost, then a certificate that fills one page.
    """
    parts = [_head(results), _findings(results), *map(_answer, results.answered)]
    parts += [_summary(results), _sites(results)]
    if results.answered or results.budget.spent:
        parts += [_budget(results), _columns(results), certificate(results)]
    title = "rehearsal on made-up rows" if results.study.rehearsal else "report"
    return html.document(f"{results.study.name}: {title}", [*parts, _foot(results)])


def _head(results: Results) -> str:
    study = results.study
    lead = f'<p class="lead">{escape(study.description)}</p>' if study.description else ""
    mark = "Rehearsal: " if study.rehearsal else ""
    facts = f'<p class="facts">{escape(_facts(results))}</p>' if results.answered else ""
    head = f"<header><h1>{mark}{escape(study.name)}</h1>{lead}{facts}</header>"
    return f"{head}{_failure(results)}"


def _facts(results: Results) -> str:
    """Return who answered how much at which price, in one line."""
    study = results.study
    took_part = dict.fromkeys(name for each in results.answered for name in each.release.participants)
    rows = max((each.release.rows or 0 for each in results.answered), default=0)
    said = [
        f"{len(took_part)} of {words.count(len(study.sites), 'site')}",
        f"{words.count(rows, 'row')} in total" if rows else "number of rows private",
        f"{len(results.answered)} of {len(study.analyses)} analyses released",
        f"privacy loss {_loss(results)}",
        f"{words.percent(float(results.budget.remaining))} of the budget left",
    ]
    return " · ".join(said)


def _findings(results: Results) -> str:
    """Return the main numbers in words, each linked to its section, and links to the other sections."""
    if not results.answered:
        return ""
    items = []
    for each in results.answered:
        said = "".join(f"<li>{escape(text)}</li>" for text in each.release.findings())
        name = escape(words.capital(each.release.describe()))
        items.append(f'<li><a href="#{_anchor(each)}">{name}</a>{f"<ul>{said}</ul>" if said else ""}</li>')
    twice = "".join(f'<p class="note">{escape(text)}</p>' for text in results.study.asked_twice)
    links = [("guarantee", "Privacy guarantee"), ("cost", "What it cost"), ("columns", "Columns")]
    links += [("certificate", "Certificate")] if certificate(results) else []
    more = " · ".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in links)
    return (
        f'<section id="findings"><h2>Main findings</h2><ol class="findings">{"".join(items)}</ol>{twice}'
        f'<nav aria-label="Contents">{more}</nav></section>'
    )


def _anchor(answered: Answered) -> str:
    return f"analysis-{answered.entry.number}"


def _loss(results: Results) -> str:
    if not math.isfinite(results.guarantee.mu):
        return "no limit"
    return f"ε = {results.guarantee.epsilon:.3g}" if results.budget.spent else "-"


def _failure(results: Results) -> str:
    said = []
    if not math.isfinite(results.guarantee.mu):
        said.append("These answers are exact: no noise was added, and nobody in the data is protected.")
    if results.public_failure is not None:
        said.append(f"The study was not finished. {results.public_failure}")
    said += map(words.sentence, results.study.warnings)
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in said)


def _summary(results: Results) -> str:
    title, said = _promised(results)
    promise = "".join(f"<p>{escape(text)}</p>" for text in said)
    assumed = words.assumptions(results.study.setting, results.scheme)
    sites = ", ".join(results.study.sites)
    return (
        f'<section id="guarantee"><h2>{title}</h2>{promise}'
        f"<h3>What is assumed</h3><ul>{''.join(f'<li>{escape(text)}</li>' for text in assumed)}</ul>"
        f'<p class="note">Sites: {escape(sites)}. Noise scheme: {escape(results.scheme)}.</p>'
        "</section>"
    )


def _sites(results: Results) -> str:
    """Return the outcome of each site, if sites are on machines of their own."""
    if not results.heard.connected and not results.heard.refusals:
        return ""
    rows = [
        (
            site.name,
            {True: "yes", False: "no", None: "not asked"}[site.connected],
            ", ".join(map(str, site.took_part)) or "none",
            "; ".join(site.reasons if site.connected is not False or site.refusals else []),
        )
        for site in results.sites
    ]
    names = ("site", "connected", "took part in analyses", "refused or lost, and why")
    return f"<section><h2>Sites</h2>{html.table(Table(names, tuple(rows)), 'words')}</section>"


def _promised(results: Results) -> tuple[str, list[str]]:
    """Return a title and the guarantee; for an unfinished study, first what it released and cost."""
    title, spent = "What is guaranteed to each person", results.budget.spent
    if not spent and math.isfinite(results.guarantee.mu):
        if results.answered:
            return title, ["Only public facts were asked for: the answers follow from the sites' sizes."]
        said = f"Nothing was released, and none of the budget was spent. {results.scope}"
        return "What was released", [said.strip()]
    if results.public_failure is None:
        return title, words.guarantee(results.guarantee)
    title = "What was released, and what is guaranteed"
    cost = f"{words.percent(float(spent))} of the budget is spent"
    if not results.answered:
        said = f"Nothing was released. {cost}, " + (
            "all of it on what failed." if spent == results.lost else "with earlier runs in this folder."
        )
        return title, [said, *words.guarantee(results.guarantee, "the messages that had left the sites")]
    numbers = ", ".join(str(each.entry.number) for each in results.answered)
    kind = "analysis" if len(results.answered) == 1 else "analyses"
    if results.lost:
        paid = words.percent(float(spent - results.lost))
        cost += f": {paid} on what was released, {words.percent(float(results.lost))} on what failed"
    return title, [f"Released: {kind} {numbers}. {cost}.", *words.guarantee(results.guarantee)]


def _answer(answered: Answered) -> str:
    """Return the section of one analysis: its release, how it was computed, and its numbers to take away."""
    release = answered.release
    said = "".join(f'<p class="warning">{escape(words.sentence(text))}</p>' for text in answered.warnings)
    who = ", ".join(release.participants) + ("" if release.rows is None else f" ({release.rows:,} rows)")
    cost = release.cost
    how = [
        f"From {who}, for {words.percent(release.share)} of the budget.",
        f"Noise scheme {release.scheme}: {words.count(cost.rounds, 'round')}, {cost.bytes / 1e3:,.1f} kB, "
        f"{cost.seconds:.2f} s.",
        f"The question as the study file asks it: {to_json(plain(release.analysis.to_dict()), indent=None)}",
    ]
    name = f"{answered.entry.number}-{release.analysis.kind}"
    return (
        f'<section id="{_anchor(answered)}"><h2>{answered.entry.number}. '
        f"{escape(words.capital(release.describe()))}</h2>{said}{html.body(release)}"
        f"<details><summary>How it was computed</summary>{''.join(f'<p>{escape(text)}</p>' for text in how)}"
        f"</details>{html.downloads(release, name)}</section>"
    )


def _budget(results: Results) -> str:
    parts = "".join(
        f'<i style="width:{100 * each.release.share:.3f}%" title="{each.entry.number}. '
        f'{escape(each.entry.analysis.kind)}: {words.percent(each.release.share)}"></i>'
        for each in results.answered
    )
    if results.lost:
        parts += f'<i class="lost" style="width:{float(100 * results.lost):.3f}%" title="failed"></i>'
    rows: list[tuple[str, ...]] = [
        (
            f"{each.entry.number}. {each.entry.analysis.kind}",
            words.percent(each.release.share),
            _finite(each.release.guarantee.mu),
            _finite(each.release.guarantee.epsilon),
            *_costs([each.release.cost]),
        )
        for each in results.answered
    ]
    if results.lost and results.failed is not None:
        failed, promise = results.failed, results.study.guarantee(results.lost, results.scheme)
        name, share = f"{failed.number}. {failed.analysis.kind}, failed", words.percent(float(results.lost))
        rows.append((name, share, _finite(promise.mu), _finite(promise.epsilon), *[""] * 4))
    total: tuple[str, ...] = (
        "total",
        words.percent(float(results.budget.spent)),
        _finite(results.guarantee.mu),
        _finite(results.guarantee.epsilon),
        *_costs([each.release.cost for each in results.answered]),
    )
    budget, pure = results.budget, results.study.setting.noise == "laplace"
    stated = f"ε = {budget.epsilon:g}, " + ("no δ" if budget.pure else f"δ = {budget.delta:g}")
    why = "epsilons of releases with Laplace noise do" if pure else "mu² does"
    epsilon = "ε" if pure else f"ε at {budget.delta:g}"
    names: tuple[str, ...] = (
        "",
        "share",
        "mu",
        epsilon,
        "rounds",
        "kB in total",
        "kB per site, at most",
        "seconds",
    )
    if pure:  # there mu is no measure
        names, total = _without_mu(names), _without_mu(total)
        rows = [_without_mu(row) for row in rows]
    return (
        f'<section id="cost"><h2>What it cost</h2><div class="budget">{parts}</div>'
        f"<p>Budget of the study: {stated}. "
        f"{words.percent(float(results.budget.spent))} is spent, "
        f"{words.percent(float(results.budget.remaining))} is left. Shares add up because "
        f"{why}.{' ' * bool(results.scope)}{escape(results.scope)}</p>"
        f"{html.table(Table(names, (*rows, total)), 'costs')}</section>"
    )


def _without_mu(row: tuple[str, ...]) -> tuple[str, ...]:
    return (*row[:2], *row[3:])


def _costs(costs: Sequence[Cost]) -> tuple[str, str, str, str]:
    """Return the total rounds, bytes and seconds."""
    return (
        str(sum(cost.rounds for cost in costs)),
        f"{sum(cost.bytes for cost in costs) / 1e3:,.1f}",
        f"{sum(cost.bytes_per_site for cost in costs) / 1e3:,.1f}",
        f"{sum(cost.seconds for cost in costs):.2f}",
    )


def _columns(results: Results) -> str:
    rows = []
    for name, column in results.study.setting.schema.items():
        said = (
            f"{column.low:g} to {column.high:g}"
            if isinstance(column, Number)
            else ", ".join(map(str, column.values))
        )
        label = f"{column.label} ({name})" if column.label else name
        if isinstance(column, Number) and column.unit:
            said = f"{said} {column.unit}"
        rows.append((label, said, "may be missing" if column.missing else "never missing"))
    names = ("column", "bounds or categories", "cells")
    return (
        '<section id="columns"><h2>What was known in advance</h2><p>These bounds and categories are public '
        "and were chosen by people. A value beyond a bound counts as the bound. "
        f"{escape(words.missing_cells(results.study.sites))}</p>"
        f"{html.table(Table(names, tuple(rows)), 'words')}</section>"
    )


def _foot(results: Results) -> str:
    when = results.finished.strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"<footer>Made by cape {escape(__version__)} on {when}. Running the study again draws fresh noise: "
        "it is a new release and costs the same again.</footer>"
    )


def _finite(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "∞"
