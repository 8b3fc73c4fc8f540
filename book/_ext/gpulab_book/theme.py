"""What the theme leaves to do: settings beside Jupyter Book's, and roles that axe refuses."""

OPTIONS = {
    "navbar_persistent": [],  # or a second search field on top
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# docutils writes a role that ARIA has given up, in a list that then has no items.
ROLES = ('role="doc-biblioentry"', 'role="listitem"')


def settle(app, config) -> None:
    config.html_theme_options.update(OPTIONS)


def mend(app, pagename, templatename, context, doctree) -> None:
    if "body" in context:
        context["body"] = context["body"].replace(*ROLES)


def setup(app) -> None:
    app.connect("config-inited", settle)
    app.connect("html-page-context", mend)
