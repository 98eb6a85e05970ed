-- A build's row says which worker holds it, not only whose token: `worker list` counts each worker's own, and `waiting_for` knows which one
-- is busy. No index has it. The functions stay as 0006 and 0007 have them but for the words that are changed here.

-- Null on builds that were claimed before, until they have ended.
alter table builds add column claimed_host text, add column claimed_name text;

-- A function's definition with one text of it, which must stand there, put for another.
create function pg_temp.with_put(p_definition text, p_old text, p_new text) returns text language plpgsql as $$
begin
    if position(p_old in p_definition) = 0 then
        raise exception 'a function to be changed does not say "%"', p_old;
    end if;
    return replace(p_definition, p_old, p_new);
end $$;

-- How long a worker that asks again is not noted again: `workers.seen_at` is true to within this.
create function worker_noted_every() returns interval language sql immutable parallel safe as $$ select interval '15 s' $$;

do $$
declare
    v_breaks text := pg_get_functiondef('build_breaks'::regproc);
    v_start text := pg_get_functiondef('start_builds'::regproc);
    v_many text := pg_get_functiondef('claim_builds'::regproc);
    v_one text := pg_get_functiondef('claim_build'::regproc);
begin
    execute pg_temp.with_put(v_breaks, 'p.lease_expires_at, p.ended_at) > 0',
        'p.lease_expires_at, p.ended_at, p.claimed_host, p.claimed_name) > 0');

    -- `p_worker_of` says of each of `p_all`, the claims of the call, which of the workers made it: a place in `p_hosts` and `p_names`.
    drop function start_builds;
    v_start := pg_temp.with_put(v_start, 'p_stale_ms bigint, OUT',
        'p_stale_ms bigint, p_all uuid[], p_hosts text[], p_names text[], p_worker_of integer[], OUT');
    execute pg_temp.with_put(v_start, 'claimed_by = p_token,',
        'claimed_by = p_token,
            claimed_host = p_hosts[p_worker_of[array_position(p_all, p_claims[f.claim])]],
            claimed_name = p_names[p_worker_of[array_position(p_all, p_claims[f.claim])]],');

    -- A caller of the release before does not say who made which claim.
    drop function claim_builds;
    v_many := pg_temp.with_put(v_many, 'p_wait uuid)', 'p_wait uuid, p_worker_of integer[] DEFAULT NULL)');
    v_many := pg_temp.with_put(v_many, 'p_rules, p_stale_ms);', 'p_rules, p_stale_ms, p_claims, p_hosts, p_names, p_worker_of);');
    execute pg_temp.with_put(v_many, 'interval ''15 s''', 'worker_noted_every()');

    v_one := pg_temp.with_put(v_one, 'claimed_by = p_token, claim_id',
        'claimed_by = p_token, claimed_host = p_host, claimed_name = p_name, claim_id');
    v_one := pg_temp.with_put(v_one, 'p_stale_ms, ''{}'', ''{}'', null)', 'p_stale_ms, ''{}'', ''{}'', null, ''{1}'')');
    execute pg_temp.with_put(v_one, 'interval ''15 s''', 'worker_noted_every()');
end $$;

drop function pg_temp.with_put;
