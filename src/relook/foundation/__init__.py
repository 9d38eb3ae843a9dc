"""What everything stands on: tables by name, amounts of memory, a watchdog, numbers as text."""
