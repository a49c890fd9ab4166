"""What a CLI can call in this process: functions, permission requests, the final answer."""
