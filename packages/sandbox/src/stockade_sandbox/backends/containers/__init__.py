"""Docker, Podman and gVisor: the agent is process one of a container."""
