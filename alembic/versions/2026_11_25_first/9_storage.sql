-- Storage.

-- Counts skip pages that vacuum has marked. Vacuum these tables after 2 percent of new rows instead of 20.
ALTER TABLE memories SET (autovacuum_vacuum_insert_scale_factor = 0.02);
ALTER TABLE memory_categories SET (autovacuum_vacuum_insert_scale_factor = 0.02);
ALTER TABLE memory_access_logs SET (autovacuum_vacuum_insert_scale_factor = 0.02);
