"""Lambda functions of LocalStack as processes of this machine, where there is no container engine."""
