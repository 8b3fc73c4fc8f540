"""Theme settings that `_config.yml` cannot say beside those that Jupyter Book writes."""


def settle(app, config) -> None:
    config.html_theme_options["navbar_persistent"] = []  # or a second search field on top


def setup(app) -> None:
    app.connect("config-inited", settle)
