"""What infra's scripts do, a subject a module. Why boto3 and not the command line: docs/decisions/0014-scripts-for-aws.md."""
