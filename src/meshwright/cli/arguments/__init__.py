"""Arguments that commands share: targets, schedules of tactics, and options."""
