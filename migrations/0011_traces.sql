-- The trace that a build belongs to, as W3C's Trace Context writes it (docs/decisions/0019). It stands beside what else is written once, at
-- admission, and not on the build's row, which every heartbeat copies. No index has it. Null on builds that were admitted before, so that no
-- row has to be looked at now.
alter table build_specs add column traceparent text,
    add constraint build_specs_traceparent_is_one
        check (traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$') not valid;
