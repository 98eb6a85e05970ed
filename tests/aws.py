"""What must hold for every template of infra/, without an account. cfn-lint parses them."""

import json
import pathlib
import re
import unittest

from cfnlint.decode import cfn_yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = {path.name: cfn_yaml.load(str(path)) for path in sorted((ROOT / "infra").glob("*.yaml"))}
FUNCTIONS = sorted(main.parent.parent.name for main in ROOT.glob("functions/*/src/main.rs"))

# Each `*` of a policy, and why nothing narrower will do.
STARS = {
    ("template.yaml: NetworkPolicy", "Interfaces", "Resource"): "EC2 can't narrow the Describe calls, and Lambda wants all six",
    ("template.yaml: NetworkPolicy", "NotByCode", "Resource"): "it denies, and a denial is the better the wider it is",
}

# Settings that the template does not make, and why not.
LEFT_OUT = {
    "another name of CALLBOARD_DATABASE_URL": {"DATABASE_URL"},
    "it is read outside of Lambda only": {"CALLBOARD_LISTEN", "CALLBOARD_LOG_FORMAT"},
    "the reaper reads none, and functions are alike": {"CALLBOARD_LOG"},
    "a function instance serves one call at a time": {"CALLBOARD_DATABASE_CONNECTIONS", "CALLBOARD_BATCH_MAX"},
    "the schedule is in the template, twice a minute as the default says": {"CALLBOARD_REAP_EVERY_MS"},
    "no route leaves the network, so that nothing outside can be asked": {
        f"CALLBOARD_BILLING_{word}" for word in ["URL", "TOKEN", "TIMEOUT_MS", "REFRESH_MS", "STALE_MS"]
    },
    "the contract's number, the same wherever Callboard runs": {
        f"CALLBOARD_{word}"
        for word in """
            LEASE_MS HEARTBEAT_EVERY_MS LEASE_GRACE_MS DEADLINE_GRACE_MS QUEUE_EXPIRY_MS KILL_GRACE_MS FENCE_MARGIN_MS LATE_LOGS_MS
            IDEMPOTENCY_MS LOG_CHUNK_BYTES LOG_BATCH_BYTES LOG_CAP_BYTES PREVIEW_SYNC_EVERY_MS PREVIEW_CLEANUP_EVERY_MS
            PREVIEW_RETENTION_MS HOST_LOST_MS HOST_FORGOTTEN_MS
        """.split()
    },
}

# Routes that the API must not have, and why.
NOT_ON_LAMBDA = {
    ("reaper", "POST /api/v1/admin/sweep"): "the function takes any event for its schedule, and looks at no token",
}

# What AWS measures by itself and alarms look at.
METRICS = {"Invocations", "Errors", "Throttles", "5xx"}


def resources(kind):
    for template, parsed in TEMPLATES.items():
        for name, resource in parsed["Resources"].items():
            if resource["Type"] == kind:
                yield f"{template}: {name}", resource


def properties(kind):
    return {name.split(": ")[1]: resource["Properties"] for name, resource in resources(kind)}


def texts(value):
    """Every string in a value, also inside of intrinsic functions."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [str(value)]


def statements(value):
    """Every statement of every policy in a value."""
    if isinstance(value, dict):
        own = value.get("Statement", [])
        return list(own) + [found for one in value.values() for found in statements(one)]
    if isinstance(value, list):
        return [found for one in value for found in statements(one)]
    return []


def arn(name):
    return {"Fn::GetAtt": [name, "Arn"]}


def mounted():
    """(function, route) as the crates' attributes have them."""
    attribute = re.compile(r'#\[utoipa::path\(\s*(get|post|put|patch|delete),\s*path = "([^"]+)"')
    for function in FUNCTIONS:
        for path in (ROOT / "functions" / function / "src").rglob("*.rs"):
            for verb, route in attribute.findall(path.read_text()):
                yield function, f"{verb.upper()} {route}"


class Functions(unittest.TestCase):
    def test_each_function_crate_is_one_lambda_function(self):
        keys = {name: texts(f["Code"]["S3Key"]) for name, f in properties("AWS::Lambda::Function").items()}
        self.assertEqual(keys, {name.capitalize(): [f"${{CodePrefix}}{name}.zip"] for name in FUNCTIONS})

    def test_they_differ_in_their_names_code_role_log_and_time_only(self):
        own = {"FunctionName", "Code", "Role", "LoggingConfig", "Timeout"}
        alike = [{k: v for k, v in f.items() if k not in own} for f in properties("AWS::Lambda::Function").values()]
        for function in alike:
            self.assertEqual(function, alike[0])
        self.assertEqual((alike[0]["Architectures"], alike[0]["Runtime"]), (["arm64"], "provided.al2023"))

    def test_the_names_of_settings_are_those_that_the_code_reads(self):
        read = set()
        # Nothing else may read the environment: a lint forbids it.
        for path in ROOT.glob("functions/lib/edge/src/**/*.rs"):
            read.update(re.findall(r'"(CALLBOARD_[A-Z_]+|DATABASE_URL)"', path.read_text()))
        for name, function in properties("AWS::Lambda::Function").items():
            made = set(function["Environment"]["Variables"])
            self.assertEqual(made - read, set(), f"{name} has what nothing reads")
            self.assertEqual(read - made, set().union(*LEFT_OUT.values()), f"{name} lacks what is read, or has what is left out")

    def test_secrets_are_references(self):
        for name, function in properties("AWS::Lambda::Function").items():
            for variable, key in [("CALLBOARD_DATABASE_URL", "database_url"), ("CALLBOARD_SECRETS_KEY", "secrets_key")]:
                reference = f"{{{{resolve:secretsmanager:${{SettingsSecretArn}}:SecretString:{key}::${{SettingsVersionId}}}}}}"
                self.assertEqual(function["Environment"]["Variables"][variable], {"Fn::Sub": reference}, name)

    def test_the_api_has_the_routes_that_the_functions_mount_and_the_document_lists(self):
        integrations = {name: i["IntegrationUri"] for name, i in properties("AWS::ApiGatewayV2::Integration").items()}
        served = []
        for name, route in properties("AWS::ApiGatewayV2::Route").items():
            target = re.fullmatch(r"integrations/\$\{(\w+)\}", texts(route["Target"])[0])
            served.append((integrations[target[1]]["Fn::GetAtt"][0].lower(), route["RouteKey"]))
        paths = json.loads((ROOT / "functions/lib/protocol/openapi.json").read_text())["paths"]
        documented = [f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs]
        self.assertEqual(sorted(served + list(NOT_ON_LAMBDA)), sorted(mounted()))
        self.assertEqual(sorted(key for _, key in served + list(NOT_ON_LAMBDA)), sorted(documented))


class Reaper(unittest.TestCase):
    def test_one_rule_a_minute_has_two_targets_the_function_and_a_queue_of_half_a_minute(self):
        rules = properties("AWS::Events::Rule")
        self.assertEqual([rule["ScheduleExpression"] for rule in rules.values()], ["rate(1 minute)"])
        self.assertEqual([target["Arn"] for target in rules["ReaperRule"]["Targets"]], [arn("Reaper"), arn("ReaperQueue")])
        self.assertEqual(properties("AWS::SQS::Queue")["ReaperQueue"]["DelaySeconds"], 30)

    def test_the_queue_is_mapped_to_the_function_and_hides_a_message_as_long_as_it_runs(self):
        (mapping,) = properties("AWS::Lambda::EventSourceMapping").values()
        self.assertEqual((mapping["FunctionName"], mapping["EventSourceArn"]), ({"Ref": "Reaper"}, arn("ReaperQueue")))
        hidden = properties("AWS::SQS::Queue")["ReaperQueue"]["VisibilityTimeout"]
        self.assertGreaterEqual(hidden, properties("AWS::Lambda::Function")["Reaper"]["Timeout"])


class Alarms(unittest.TestCase):
    def test_there_are_those_that_need_no_metric_of_ours(self):
        watched = {name: METRICS & set(texts(alarm)) for name, alarm in properties("AWS::CloudWatch::Alarm").items()}
        reaper, api, throttles = {"Invocations", "Errors"}, {"5xx"}, {"Throttles"}
        self.assertEqual(watched, {"ReaperSilentAlarm": reaper, "ServerErrorsAlarm": api, "ThrottlesAlarm": throttles})

    def test_every_function_is_watched_for_throttles(self):
        metrics = properties("AWS::CloudWatch::Alarm")["ThrottlesAlarm"]["Metrics"]
        dimensions = [metric["MetricStat"]["Metric"]["Dimensions"] for metric in metrics if "MetricStat" in metric]
        watched = [[{"Name": "FunctionName", "Value": {"Ref": name}}] for name in properties("AWS::Lambda::Function")]
        self.assertEqual(dimensions, watched)

    def test_a_reaper_that_says_nothing_at_all_is_silent(self):
        self.assertEqual(properties("AWS::CloudWatch::Alarm")["ReaperSilentAlarm"]["TreatMissingData"], "breaching")


class Templates(unittest.TestCase):
    def test_every_log_group_has_a_retention(self):
        groups = list(resources("AWS::Logs::LogGroup"))
        self.assertTrue(groups)
        for name, group in groups:
            self.assertIn("RetentionInDays", group["Properties"], name)

    def test_every_function_logs_to_a_group_of_its_own(self):
        groups = properties("AWS::Logs::LogGroup")
        for name, function in properties("AWS::Lambda::Function").items():
            self.assertEqual(function["LoggingConfig"]["LogGroup"], {"Ref": f"{name}Log"}, name)
            self.assertIn(f"{name}Log", groups)

    def test_no_policy_has_a_star_that_is_not_listed_with_its_reason(self):
        found = set()
        for template, parsed in TEMPLATES.items():
            for name, resource in parsed["Resources"].items():
                for statement in statements(resource["Properties"]):
                    for part in statement:
                        if part != "Condition" and any("*" in text for text in texts(statement[part])):
                            found.add((f"{template}: {name}", statement.get("Sid"), part))
        self.assertEqual(found, set(STARS))

    def test_no_policy_is_one_that_is_not_read_here(self):
        for name, role in resources("AWS::IAM::Role"):
            for policy in role["Properties"].get("ManagedPolicyArns", []):
                self.assertEqual(policy, {"Ref": "NetworkPolicy"}, name)
        for name, permission in resources("AWS::Lambda::Permission"):
            self.assertFalse([text for text in texts(permission) if "*" in text], name)

    def test_nothing_leads_in_from_outside_or_out(self):
        ways = ["InternetGateway", "EgressOnlyInternetGateway", "NatGateway", "Route", "VPCPeeringConnection"]
        for kind in [*ways, "SecurityGroupIngress", "SecurityGroupEgress"]:
            self.assertEqual(list(resources(f"AWS::EC2::{kind}")), [])
        for name, subnet in resources("AWS::EC2::Subnet"):
            self.assertIs(subnet["Properties"]["MapPublicIpOnLaunch"], False, name)
        for name, group in resources("AWS::EC2::SecurityGroup"):
            for rule in group["Properties"].get("SecurityGroupIngress", []):
                self.assertIn("SourceSecurityGroupId", rule, name)
            for rule in group["Properties"].get("SecurityGroupEgress", []):
                self.assertEqual(rule["CidrIp"], {"Ref": "NetworkCidr"}, name)

    def test_names_carry_the_stack_and_the_region(self):
        kinds = ["Function", "Role", "ManagedPolicy", "LogGroup", "Queue", "Group", "Alarm", ""]
        named = {f"{kind}Name" for kind in kinds} | {"DBClusterIdentifier"}
        for template, parsed in TEMPLATES.items():
            for name, resource in parsed["Resources"].items():
                for key in named & set(resource["Properties"]):
                    value = resource["Properties"][key]
                    if "Ref" not in value:
                        self.assertRegex(value["Fn::Sub"], r"\$\{AWS::StackName\}.*\$\{AWS::Region\}", f"{template}: {name}")

    def test_the_database_lets_in_the_functions_only(self):
        groups = [g for n, g in resources("AWS::EC2::SecurityGroup") if n == "database.yaml: DatabaseSecurityGroup"]
        self.assertEqual(len(groups), 1)
        sources = [{k: v for k, v in rule.items() if k != "Description"} for rule in groups[0]["Properties"]["SecurityGroupIngress"]]
        self.assertEqual(
            sources,
            [{"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "SourceSecurityGroupId": {"Ref": "ClientSecurityGroupId"}}],
        )

    def test_the_database_is_private_encrypted_and_kept(self):
        for name, cluster in resources("AWS::RDS::DBCluster"):
            self.assertIs(cluster["Properties"]["StorageEncrypted"], True, name)
            self.assertEqual(cluster["DeletionPolicy"], "Snapshot", name)
        for name, instance in resources("AWS::RDS::DBInstance"):
            self.assertIs(instance["Properties"]["PubliclyAccessible"], False, name)


if __name__ == "__main__":
    unittest.main()
