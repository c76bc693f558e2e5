"""Running compiled graphs; imports neither passes nor schedules."""
