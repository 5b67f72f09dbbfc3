from openmemory.config.vendor_telemetry import turn_off

turn_off()
