"""A report told: one outline, and what is made of it for terminal, markdown, web page, panels and bundles.

Imports session and below.

`outline` decides once what every form prints. `page` is one file without scripts, with plots drawn as SVG; `views`
computes what a panel of the chat shows, as plain data; `collect` puts together bundles, bug reports and tickets. All
that is passed on goes through the redactor.
"""
