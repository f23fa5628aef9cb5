"""The sending side: records wait in batches, the Sender turns them into Produce requests and answers into outcomes."""
