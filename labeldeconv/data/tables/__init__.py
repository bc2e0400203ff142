"""A folder of node and edge tables, checked and turned into an AttributedGraph."""
