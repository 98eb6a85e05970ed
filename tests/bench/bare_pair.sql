update jobs set status = 'running', started_at = now() where id = (select id from jobs where status = 'pending' order by id limit 1 for update skip locked) returning id \aset
update jobs set status = 'success', ended_at = now() where id = :id::bigint and status = 'running';
