"""Browser tests are no part of `make test`: they run where they are asked for, `make test-browser`."""


def pytest_ignore_collect(collection_path, config):
    return None if any("browser" in str(argument) for argument in config.args) else collection_path.suffix == ".py"
