"""What must hold for every template of infra/, without an account. cfn-lint parses them."""

import collections
import copy
import ipaddress
import itertools
import json
import pathlib
import re
import subprocess
import sys
import unittest

from cfnlint.decode import cfn_yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = {path.name: cfn_yaml.load(str(path)) for path in sorted((ROOT / "infra").glob("*.yaml"))}
FUNCTIONS = sorted(main.parent.parent.name for main in ROOT.glob("functions/*/src/main.rs"))

# Each `*` of a policy, and why nothing narrower will do.
STARS = {
    ("template.yaml: NetworkPolicy", "Interfaces", "Resource"): "EC2 can't narrow the Describe calls, and Lambda wants all six",
    ("template.yaml: NetworkPolicy", "NotByCode", "Resource"): "it denies, and a denial is the better the wider it is",
    ("template.yaml: TasksPolicy", "ListTasks", "Resource"): "AWS narrows this action by its condition, the cluster",
    ("template.yaml: TasksPolicy", "StopTasks", "Resource"): "any task of this one cluster: they get their names when they start",
    ("template.yaml: EcsEndpoint", "ListTasks", "Resource"): "AWS narrows this action by its condition, the cluster",
    ("template.yaml: EcsEndpoint", "StopTasks", "Resource"): "any task of this one cluster: they get their names when they start",
    ("workers.yaml: InstanceRole", "Endpoint", "Resource"): "AWS knows no resource for this action",
    ("workers.yaml: InstanceRole", "Instances", "Resource"): "any instance of this one cluster: they get their names when they start",
    ("workers.yaml: ImagePolicy", "Login", "Resource"): "AWS knows no resource for this action",
}

# Settings that the template does not make, and why not.
LEFT_OUT = {
    "another name of CALLBOARD_DATABASE_URL": {"DATABASE_URL"},
    "CALLBOARD_KEY_SECRET says which secret has it": {"CALLBOARD_SECRETS_KEY"},
    "it is read outside of Lambda only": {"CALLBOARD_LISTEN", "CALLBOARD_LOG_FORMAT"},
    "the default will do": {"CALLBOARD_LOG"},
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

# Settings of the worker that the template does not make, and why not.
WORKER_LEFT_OUT = {
    "the secret holds the token, and no file does": {"CALLBOARD_WORKER_TOKEN_FILE"},
    "there is no file in the image, and none is needed": {"CALLBOARD_WORKER_CONFIG", "CALLBOARD_CA_BUNDLE", "CALLBOARD_HOST_ID_FILE"},
    "the container's name, the network's resolver and the daemon's usual socket will do": {
        "CALLBOARD_WORKER_NAME", "CALLBOARD_RESOLVER", "DOCKER_HOST"
    },
    "the volume is mounted at the default": {"CALLBOARD_BUILDS_ROOT"},
    "the steps' network holds nothing that they may reach": {"CALLBOARD_EGRESS_ALLOW"},
    "nothing is to be missing there": {"CALLBOARD_ACCEPT"},
    "steps have an image, and the host's programs are none of theirs": {"CALLBOARD_TOOLS"},
    "there are no previews, since nothing leads in": {
        f"CALLBOARD_PREVIEW_{word}" for word in ["PORTS", "ADDRESS", "URL", "START_TIMEOUT", "HEALTH_EVERY_MS"]
    },
    "the default will do": {
        f"CALLBOARD_{word}"
        for word in """
            LOG FIRST_UID PROCESSES PULL CLONE_IMAGE SILENT_TIMEOUT KILL_GRACE_MS FENCE_MARGIN_MS LOGS_HOLD_MS FREE_MIB_MIN
        """.split()
    },
}

# Each service that a network may be joined to, and why.
ENDPOINTS = {
    "template.yaml: SecretsEndpoint": "the functions ask Secrets Manager without a way out",
    "template.yaml: EcsEndpoint": "the reaper asks ECS, where workers start tasks, without a way out",
}

# What AWS measures by itself, and alarms and the dashboard look at.
METRICS = {"Invocations", "Errors", "Throttles", "5xx", "Count", "Latency"}


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


# The policy of a role that may connect as a user of the database, where there is one.
DATABASE_USER = {"Fn::If": ["HasDatabaseUser", {"Ref": "DatabaseUserPolicy"}, {"Ref": "AWS::NoValue"}]}
# And that of the one that may stop tasks, where workers start some.
TASKS = {"Fn::If": ["HasCluster", {"Ref": "TasksPolicy"}, {"Ref": "AWS::NoValue"}]}


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
        prefix = collections.defaultdict(lambda: "CodePrefix", migrate="MigrateCodePrefix")
        self.assertEqual(keys, {name.capitalize(): [f"${{{prefix[name]}}}{name}.zip"] for name in FUNCTIONS})

    def test_they_differ_in_their_names_code_role_log_and_time_only(self):
        own = {"FunctionName", "Code", "Role", "LoggingConfig", "Timeout"}
        alike = [{k: v for k, v in copy.deepcopy(f).items() if k not in own} for f in properties("AWS::Lambda::Function").values()]
        for function in alike:
            # Who connects by the role has a test of its own.
            del function["Environment"]["Variables"]["CALLBOARD_DATABASE_USER_ARN"]
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

    def test_secrets_are_fetched_by_the_code_and_stand_in_no_setting(self):
        template = TEMPLATES["template.yaml"]
        secrets = {"CALLBOARD_DATABASE_SECRET": "DatabaseSecretArn", "CALLBOARD_KEY_SECRET": "KeySecretArn"}
        for name, function in properties("AWS::Lambda::Function").items():
            for variable, parameter in secrets.items():
                self.assertEqual(function["Environment"]["Variables"][variable], {"Ref": parameter}, name)
        self.assertFalse([text for text in texts(template) if "{{resolve:" in text])
        # An address with a password in it is refused.
        allowed = template["Parameters"]["DatabaseUrl"]["AllowedPattern"]
        self.assertTrue(re.fullmatch(allowed, "postgres://host.example:5432/callboard?sslmode=verify-full"))
        self.assertIsNone(re.fullmatch(allowed, "postgres://user:word@host.example/callboard"))

    def test_the_role_and_the_endpoint_allow_to_read_these_two_secrets_and_nothing_else(self):
        wanted = {"Action": "secretsmanager:GetSecretValue", "Resource": [{"Ref": "DatabaseSecretArn"}, {"Ref": "KeySecretArn"}]}
        holders = [TEMPLATES["template.yaml"]["Resources"][name]["Properties"] for name in ["SecretsPolicy", "SecretsEndpoint"]]
        for holder in holders:
            (statement,) = statements(holder)
            self.assertEqual({key: statement[key] for key in wanted}, wanted)
        for name, function in properties("AWS::Lambda::Function").items():
            role = TEMPLATES["template.yaml"]["Resources"][f"{name}Role"]["Properties"]
            self.assertIn({"Ref": "SecretsPolicy"}, role["ManagedPolicyArns"], name)

    def test_the_functions_may_connect_as_one_user_by_their_role_and_the_one_that_migrates_may_not(self):
        resources = TEMPLATES["template.yaml"]["Resources"]
        policy = resources["DatabaseUserPolicy"]
        (statement,) = statements(policy["Properties"])
        self.assertEqual((statement["Action"], statement["Resource"]), ("rds-db:connect", {"Ref": "DatabaseUserArn"}))
        self.assertEqual(policy["Condition"], DATABASE_USER["Fn::If"][0])
        for name, function in properties("AWS::Lambda::Function").items():
            has = DATABASE_USER in resources[f"{name}Role"]["Properties"]["ManagedPolicyArns"]
            told = function["Environment"]["Variables"]["CALLBOARD_DATABASE_USER_ARN"]
            self.assertEqual((has, told), (False, "") if name == "Migrate" else (True, {"Ref": "DatabaseUserArn"}), name)

    def test_the_reaper_alone_may_list_and_stop_tasks_of_one_cluster_where_there_is_one(self):
        resources = TEMPLATES["template.yaml"]["Resources"]
        cluster = {"Ref": "EcsClusterArn"}
        for name in ["TasksPolicy", "EcsEndpoint", "EcsSecurityGroup"]:
            self.assertEqual(resources[name]["Condition"], "HasCluster")
        for name in ["TasksPolicy", "EcsEndpoint"]:
            listing, stopping = statements(resources[name]["Properties"])
            self.assertEqual((listing["Action"], stopping["Action"]), ("ecs:ListTasks", "ecs:StopTask"))
            self.assertEqual(listing["Condition"], {"ArnEquals": {"ecs:cluster": cluster}})
            text, parts = stopping["Resource"]["Fn::Sub"]
            self.assertRegex(text, r":task/\$\{Cluster\}/\*$")
            self.assertEqual(parts, {"Cluster": {"Fn::Select": [1, {"Fn::Split": ["/", cluster]}]}})
        for name, function in properties("AWS::Lambda::Function").items():
            self.assertEqual(TASKS in resources[f"{name}Role"]["Properties"]["ManagedPolicyArns"], name == "Reaper", name)
            self.assertEqual(function["Environment"]["Variables"]["CALLBOARD_ECS_CLUSTER"], cluster, name)
        allowed = TEMPLATES["template.yaml"]["Parameters"]["EcsClusterArn"]["AllowedPattern"]
        self.assertTrue(re.fullmatch(allowed, "arn:aws:ecs:eu-west-1:123456789012:cluster/builds_1"))
        self.assertIsNone(re.fullmatch(allowed, "builds"))

    def test_the_api_has_the_routes_that_the_functions_mount_and_the_document_lists(self):
        integrations = {name: i["IntegrationUri"] for name, i in properties("AWS::ApiGatewayV2::Integration").items()}
        served = []
        for name, route in properties("AWS::ApiGatewayV2::Route").items():
            target = re.fullmatch(r"integrations/\$\{(\w+)\}", texts(route["Target"])[0])
            served.append((integrations[target[1]]["Fn::GetAtt"][0].lower(), route["RouteKey"]))
        paths = json.loads((ROOT / "functions/lib/protocol/openapi.json").read_text())["paths"]
        documented = [f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs]
        self.assertEqual(sorted(served), sorted(mounted()))
        self.assertEqual(sorted(key for _, key in served), sorted(documented))


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


def watched_functions():
    """All but the one that a script calls and tells of."""
    return [name for name in properties("AWS::Lambda::Function") if name != "Migrate"]


def told():
    """The names of the numbers that the functions tell, and their namespace, as the code has them."""
    source = (ROOT / "functions/lib/edge/src/aws/metrics.rs").read_text()
    names = re.search(r"fn name\(.*?\n    }", source, re.S)[0]
    return set(re.findall(r'=> "(\w+)"', names)), re.search(r'const NAMESPACE: &str = "(\w+)"', source)[1]


def measured(alarm):
    """(namespace, name, function or API) of each number that an alarm looks at."""
    metrics = [one["MetricStat"]["Metric"] for one in alarm["Metrics"] if "MetricStat" in one] if "Metrics" in alarm else [alarm]
    return {(one["Namespace"], one["MetricName"], one["Dimensions"][0]["Value"]["Ref"]) for one in metrics}


def shown():
    """(namespace, name, function or API) of each number that the dashboard shows."""
    (dashboard,) = properties("AWS::CloudWatch::Dashboard").values()
    body = json.loads(dashboard["DashboardBody"]["Fn::Sub"])
    rows = [row for widget in body["widgets"] for row in widget["properties"].get("metrics", [])]
    return {(namespace, name, whose.strip("${}")) for namespace, name, _, whose, *_ in rows}


class Alarms(unittest.TestCase):
    def test_there_is_one_for_each_thing_that_must_be_told(self):
        watched = {name: {metric[1:] for metric in measured(alarm)} for name, alarm in properties("AWS::CloudWatch::Alarm").items()}
        self.assertEqual(watched, {
            "QueueStuckAlarm": {("Backlog", "Reaper"), ("EndedBuilds", "Complete")},
            "LapsedLeasesAlarm": {("LapsedLeases", "Reaper")},
            "ReaperSilentAlarm": {("Invocations", "Reaper"), ("Errors", "Reaper")},
            "ServerErrorsAlarm": {("5xx", "Api")},
            "ThrottlesAlarm": {("Throttles", name) for name in watched_functions()},
        })

    def test_alarms_and_the_dashboard_have_the_names_that_the_code_tells(self):
        names, namespace = told()
        used = set().union(shown(), *map(measured, properties("AWS::CloudWatch::Alarm").values()))
        self.assertEqual({name for space, name, _ in used if space == namespace}, names)
        self.assertEqual({name for space, name, _ in used if space != namespace} - METRICS, set())
        self.assertEqual({space for space, _, _ in used}, {namespace, "AWS/Lambda", "AWS/ApiGateway"})

    def test_what_the_code_tells_is_looked_for_where_it_is_told(self):
        names, namespace = told()
        tellers = {"Reaper": "functions/reaper/src/numbers.rs", "Complete": "functions/complete/src/end.rs"}
        says = {name: set(re.findall(r"\(Metric::(\w+), ", (ROOT / path).read_text().split("#[cfg(test)]")[0])) for name, path in tellers.items()}
        used = set().union(shown(), *map(measured, properties("AWS::CloudWatch::Alarm").values()))
        for space, name, whose in used:
            if space == namespace:
                self.assertIn(name, says[whose])
        self.assertEqual(set().union(*says.values()), names)

    def test_the_dashboard_shows_every_alarm_and_every_function(self):
        (dashboard,) = properties("AWS::CloudWatch::Dashboard").values()
        body = dashboard["DashboardBody"]["Fn::Sub"]
        for name in properties("AWS::CloudWatch::Alarm"):
            self.assertIn(f'"${{{name}.Arn}}"', body)
        self.assertEqual({whose for _, name, whose in shown() if name == "Errors"}, set(watched_functions()))

    def test_a_queue_is_stuck_only_when_the_longest_build_could_have_ended(self):
        parameters = TEMPLATES["template.yaml"]["Parameters"]
        self.assertGreater(parameters["StuckMinutes"]["Default"] * 60_000, parameters["DeadlineMaxMs"]["Default"])

    def test_every_function_is_watched_for_throttles(self):
        metrics = properties("AWS::CloudWatch::Alarm")["ThrottlesAlarm"]["Metrics"]
        dimensions = [metric["MetricStat"]["Metric"]["Dimensions"] for metric in metrics if "MetricStat" in metric]
        watched = [[{"Name": "FunctionName", "Value": {"Ref": name}}] for name in watched_functions()]
        self.assertEqual(dimensions, watched)

    def test_a_reaper_that_says_nothing_at_all_is_silent(self):
        self.assertEqual(properties("AWS::CloudWatch::Alarm")["ReaperSilentAlarm"]["TreatMissingData"], "breaching")


class Workers(unittest.TestCase):
    template = TEMPLATES["workers.yaml"]
    task = template["Resources"]["Task"]["Properties"]
    worker = task["ContainerDefinitions"][0]

    def default(self, name):
        return self.template["Parameters"][name]["Default"]

    def made(self):
        """Name and value of each setting, also of those that a condition makes."""
        chosen = [one["Fn::If"][1] if "Fn::If" in one else one for one in self.worker["Environment"]]
        return {one["Name"]: one["Value"] for one in chosen}

    def test_their_network_leads_to_the_internet_and_nowhere_else(self):
        routes = properties("AWS::EC2::Route")
        ends = {name: (route["DestinationCidrBlock"], {key for key in route if key.endswith("Id")}) for name, route in routes.items()}
        everywhere = "0.0.0.0/0"
        table = "RouteTableId"
        self.assertEqual(ends, {"PublicRoute": (everywhere, {table, "GatewayId"}), "PrivateRoute": (everywhere, {table, "NatGatewayId"})})
        self.assertEqual((routes["PublicRoute"]["GatewayId"], routes["PrivateRoute"]["NatGatewayId"]), ({"Ref": "Gateway"}, {"Ref": "Nat"}))

    def test_no_network_security_group_or_database_comes_from_elsewhere(self):
        for name, parameter in self.template["Parameters"].items():
            self.assertIn(parameter["Type"], ["String", "Number", "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"], name)
        self.assertFalse([text for text in texts(self.template) if "ImportValue" in text or "5432" in text or "database" in text.lower()])
        for name, resource in self.template["Resources"].items():
            self.assertNotIn("Fn::ImportValue", json.dumps(resource, default=str), name)
            if "VpcId" in resource["Properties"]:
                self.assertEqual(resource["Properties"]["VpcId"], {"Ref": "Vpc"}, name)

    def test_nobody_calls_them_and_they_have_tcp_only(self):
        group = self.template["Resources"]["WorkersSecurityGroup"]["Properties"]
        self.assertNotIn("SecurityGroupIngress", group)
        self.assertEqual([rule["IpProtocol"] for rule in group["SecurityGroupEgress"]], ["tcp"])

    def test_instances_have_no_public_address_and_keep_their_rights_from_containers(self):
        self.assertEqual(self.template["Resources"]["Instances"]["Properties"]["VPCZoneIdentifier"], [{"Ref": "SubnetA"}, {"Ref": "SubnetB"}])
        for subnet in ["SubnetA", "SubnetB"]:
            table = self.template["Resources"][f"{subnet}Routes"]["Properties"]["RouteTableId"]
            self.assertEqual(table, {"Ref": "PrivateRoutes"})
        data = self.template["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"]
        self.assertEqual(data["MetadataOptions"], {"HttpTokens": "required", "HttpPutResponseHopLimit": 1})
        self.assertNotIn("NetworkInterfaces", data)
        # One hop is one too few for a container only where it has a network of its own.
        self.assertEqual(self.task["NetworkMode"], "bridge")

    def test_the_names_of_settings_are_those_that_the_worker_reads(self):
        read = set()
        for path in ROOT.glob("worker-image/src/**/*.rs"):
            read.update(re.findall(r'(?:env = |const TOKEN: &str = |try_from_env\()"([A-Z_]+)"', path.read_text()))
        made = set(self.made()) | {secret["Name"] for secret in self.worker["Secrets"]}
        self.assertEqual(made - read, set(), "nothing reads them")
        self.assertEqual(read - made, set().union(*WORKER_LEFT_OUT.values()), "they are not made, or left out and made")

    def test_the_token_is_a_secret(self):
        self.assertEqual(self.worker["Secrets"], [{"Name": "CALLBOARD_WORKER_TOKEN", "ValueFrom": {"Ref": "TokenSecretArn"}}])
        self.assertFalse([name for name in self.made() if "TOKEN" in name])
        self.assertFalse([text for text in texts(self.template) if "{{resolve:" in text])
        self.assertNotIn("TaskRoleArn", self.task)

    def test_they_log_to_a_group_of_this_template(self):
        options = self.worker["LogConfiguration"]["Options"]
        self.assertEqual(options["awslogs-group"], {"Ref": "WorkerLog"})

    def test_they_are_where_sandboxes_work(self):
        self.assertEqual((self.task["RequiresCompatibilities"], self.worker["Privileged"], self.worker["User"]), (["EC2"], True, "0"))
        self.assertIs(self.worker["LinuxParameters"]["InitProcessEnabled"], False)
        paths = {volume["Host"]["SourcePath"] for volume in self.task["Volumes"]}
        self.assertEqual({mount["ContainerPath"] for mount in self.worker["MountPoints"]}, paths)
        source = (ROOT / "worker-image/src/cli/mod.rs").read_text()
        source += "".join(path.read_text() for path in (ROOT / "worker-image/src/cli").glob("[!m]*.rs"))
        self.assertEqual(paths, {
            re.search(r'"CALLBOARD_BUILDS_ROOT", default_value = "([^"]+)"', source)[1],
            re.search(r'"DOCKER_HOST", default_value = "unix://([^"]+)"', source)[1],
        })

    def test_the_stop_timeout_lasts_for_the_longest_drain_the_grace_and_the_last_logs(self):
        source = (ROOT / "worker-image/src/cli/run.rs").read_text()
        waits = [re.search(rf'"CALLBOARD_{name}", default_value_t = ([0-9_]+)', source)[1] for name in ["KILL_GRACE_MS", "LOGS_HOLD_MS"]]
        longest = self.template["Parameters"]["DrainSeconds"]["MaxValue"] + sum(map(int, waits)) / 1000
        self.assertGreater(self.worker["StopTimeout"], longest)

    def test_there_can_be_none_and_by_default_one_with_many_slots_that_fit(self):
        count = self.template["Parameters"]["DesiredCount"]
        self.assertEqual((count["MinValue"], count["Default"], self.default("Slots")), (0, 1, 8))
        self.assertEqual(self.template["Resources"]["Instances"]["Properties"]["MinSize"], "0")
        self.assertGreaterEqual(self.default("InstancesMax"), 2 * count["Default"])
        self.assertLess(self.default("Slots") * self.default("DiskMib"), self.default("VolumeGib") * 1024)

    def test_a_deployment_that_fails_is_taken_back_and_each_worker_is_alone_on_its_instance(self):
        service = self.template["Resources"]["Service"]["Properties"]
        self.assertEqual(service["DeploymentConfiguration"]["DeploymentCircuitBreaker"], {"Enable": True, "Rollback": True})
        self.assertEqual(service["PlacementConstraints"], [{"Type": "distinctInstance"}])
        # Without it a worker that ends at once counts as deployed.
        self.assertEqual(self.worker["HealthCheck"]["Command"][-1], "health")

    def test_spot_is_asked_for_by_the_parameter_and_drains(self):
        mixed = self.template["Resources"]["Instances"]["Properties"]["MixedInstancesPolicy"]["InstancesDistribution"]
        self.assertEqual(mixed["OnDemandPercentageAboveBaseCapacity"], {"Fn::If": ["IsSpot", 0, 100]})
        (script,) = texts(self.template["Resources"]["LaunchTemplate"]["Properties"]["LaunchTemplateData"]["UserData"])
        self.assertIn("ECS_ENABLE_SPOT_INSTANCE_DRAINING=true\n", script)


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
                self.assertIn(policy, [{"Ref": "NetworkPolicy"}, {"Ref": "SecretsPolicy"}, DATABASE_USER, TASKS], name)
        for name, permission in resources("AWS::Lambda::Permission"):
            self.assertFalse([text for text in texts(permission) if "*" in text], name)

    def test_no_network_is_joined_to_another(self):
        apart = re.compile("AWS::EC2::(VPCPeering|TransitGateway|VPN|VPCEndpoint|SecurityGroup(In|E)gress)|AWS::(VpcLattice|NetworkManager|RAM)::")
        joined = {f"{template}: {name}" for template, parsed in TEMPLATES.items() for name, r in parsed["Resources"].items() if apart.match(r["Type"])}
        self.assertEqual(joined, set(ENDPOINTS))
        networks = [ipaddress.ip_network(t["Parameters"]["NetworkCidr"]["Default"]) for t in TEMPLATES.values() if "NetworkCidr" in t["Parameters"]]
        self.assertEqual([a.overlaps(b) for a, b in itertools.combinations(networks, 2)], [False])

    def test_nothing_leads_in_from_outside_or_out(self):
        ways = ["InternetGateway", "EgressOnlyInternetGateway", "NatGateway", "Route"]
        for kind in ways:
            self.assertEqual([name for name, _ in resources(f"AWS::EC2::{kind}") if not name.startswith("workers.yaml: ")], [])
        for name, subnet in resources("AWS::EC2::Subnet"):
            self.assertIs(subnet["Properties"]["MapPublicIpOnLaunch"], False, name)
        for name, group in resources("AWS::EC2::SecurityGroup"):
            for rule in group["Properties"].get("SecurityGroupIngress", []):
                self.assertIn("SourceSecurityGroupId", rule, name)
            for rule in group["Properties"].get("SecurityGroupEgress", []):
                if not name.startswith("workers.yaml: "):
                    self.assertEqual(rule["CidrIp"], {"Ref": "NetworkCidr"}, name)

    def test_names_carry_the_stack_and_the_region(self):
        kinds = ["Function", "Role", "ManagedPolicy", "LogGroup", "Queue", "Group", "Alarm", "Dashboard", ""]
        kinds += ["Cluster", "Service", "AutoScalingGroup", "LaunchTemplate"]
        named = {f"{kind}Name" for kind in kinds} | {"DBClusterIdentifier"}
        for template, parsed in TEMPLATES.items():
            for name, resource in parsed["Resources"].items():
                if resource["Type"] == "AWS::EC2::VPCEndpoint":
                    # Its ServiceName is AWS's.
                    continue
                own = {"Family"} if resource["Type"] == "AWS::ECS::TaskDefinition" else set()
                for key in (named | own) & set(resource["Properties"]):
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

    def test_the_cost_page_says_what_the_templates_and_prices_give(self):
        subprocess.run([sys.executable, ROOT / "infra" / "costs", "--check"], check=True)


if __name__ == "__main__":
    unittest.main()
