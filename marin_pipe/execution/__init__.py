"""The engine: steps -> identity -> plan -> schedule -> attempt -> commit."""
