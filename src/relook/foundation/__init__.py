"""Basics that every package may use: tables by name, memory, threads, a watchdog, text."""
