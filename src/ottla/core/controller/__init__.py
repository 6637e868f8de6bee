"""Controller decisions: topics, replica placement, leader elections and reassignments."""
