"""What must hold for every template of infra/, without an account. cfn-lint parses them."""

import pathlib
import unittest

from cfnlint.decode import cfn_yaml

INFRA = pathlib.Path(__file__).resolve().parent.parent / "infra"


def resources(kind):
    for path in sorted(INFRA.glob("*.yaml")):
        for name, resource in cfn_yaml.load(str(path))["Resources"].items():
            if resource["Type"] == kind:
                yield f"{path.name}: {name}", resource


class Templates(unittest.TestCase):
    def test_every_log_group_has_a_retention(self):
        groups = list(resources("AWS::Logs::LogGroup"))
        self.assertTrue(groups)
        for name, group in groups:
            self.assertIn("RetentionInDays", group["Properties"], name)

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
