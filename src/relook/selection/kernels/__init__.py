"""Compiled selection: exact scores of many candidates, with most dropped early."""
