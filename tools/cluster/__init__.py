"""Runs docker-compose.yml without Docker: the services as processes with the same commands (docs/cluster.md).

On the command line: `python -m tools.cluster up`. In tests:

    project = compose.load(Path("docker-compose.yml"), {"BROKER_1_PORT": "29092"})
    async with Cluster(project, folder, choice.place(project, folder)) as cluster:
        await cluster.kill("broker-2")
"""
