"""How LocalStack finds the executor: by the name `process` in LAMBDA_RUNTIME_EXECUTOR."""

from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin


class ProcessPlugin(RuntimeExecutorPlugin):
    name = "process"

    def load(self, *_args, **_kwargs):
        # Not at the top: LocalStack reads plugins before its own modules can be imported.
        from callboard_executor.executor import ProcessExecutor

        return ProcessExecutor
