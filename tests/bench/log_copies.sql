-- A table like that of the logs, for COPY.
create table log_copies (like build_logs including all);
