"""docker-compose.yml without Docker: the same commands and environments as processes (docs/cluster.md).

`python -m cluster up` for people; for tests and faults:

    project = compose.load(Path("docker-compose.yml"), {"BROKER_1_PORT": "29092"})
    async with Cluster(project, folder, choice.place(project, folder)) as cluster:
        await cluster.kill("broker-2")
"""
