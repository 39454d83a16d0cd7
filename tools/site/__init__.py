"""The documentation's site: `staging` makes its pages from the repository, and Zensical a site of them.

The pages of docs/ are written to be read where the repository is hosted, too. So links between them are relative paths
of files, and nothing in them is a generator's own syntax. `reference` adds the pages of public names.
"""
