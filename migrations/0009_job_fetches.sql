-- Who fetched a build's job by its log token: the number that the fetcher chose for itself. Null until then. Only an equal number gets the
-- job again. A build is claimed once in its life (what runs never waits again, a retry is another build), so that no claim has anything to
-- clear. No index has it.
alter table builds add column job_fetch_id uuid;
