"""What must be true before replication can run: facts are gathered, and findings are made of facts.

``gather`` talks to servers; the modules beside it are pure: facts in, findings out.
"""
