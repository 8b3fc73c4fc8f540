"""What this book adds to Sphinx: pages that follow the data, a box on each lab, tables."""

from gpulab_book import calculator_page, data_pages, fresh, lab_box, theme, wheel


def setup(app) -> dict:
    for part in (calculator_page, data_pages, fresh, lab_box, theme, wheel):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
