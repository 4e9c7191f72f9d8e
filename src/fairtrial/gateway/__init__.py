"""The gateway: the process through which every model request of a trial passes."""
