"""What the theme leaves to do: settings, and what screen readers trip over."""

OPTIONS = {
    "navbar_persistent": [],  # or a second search field on top
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
MENDED = {
    # docutils writes a role that ARIA has given up, in a list that then has no items
    'role="doc-biblioentry"': 'role="listitem"',
    # a folded cell is named by the words that it shows
    '<summary aria-label="Toggle hidden content">': "<summary>",
}


def settle(app, config) -> None:
    config.html_theme_options.update(OPTIONS)
    config.html_context.setdefault("default_mode", "auto")  # as the reader has it


def mend(app, pagename, templatename, context, doctree) -> None:
    for written, right in MENDED.items():
        context["body"] = context.get("body", "").replace(written, right)


def setup(app) -> None:
    app.connect("config-inited", settle)
    app.connect("html-page-context", mend)
