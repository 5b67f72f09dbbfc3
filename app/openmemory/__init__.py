from openmemory.no_telemetry import turn_off

turn_off()
