"""What turns a policy into a running sandbox: a module or a folder for each kind, registered by entry points."""
