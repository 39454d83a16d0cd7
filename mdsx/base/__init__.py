"""Helpers that know nothing about data."""
