"""Write an object only if it does not exist, on S3, Google Cloud Storage and Azure. pyarrow can't; obstore can."""

import os
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from mislabel.sweeps.errors import WrongStoreError

# Our own code retries, with the caller's time limit.
_RETRIES: Any = {"max_retries": 0}


def put_if_absent(address: str, path: str, data: bytes, region: str | None = None) -> bool:
    """Write the object; False if it exists. Raises OSError if the store fails.

    `path` starts with the bucket. `region` is that of an S3 bucket whose address does not name it.
    """
    bucket, _, key = path.partition("/")
    try:
        _bucket(address, bucket, region).put(key, data, mode="create")
    except AlreadyExistsError:
        return False
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise OSError(f"ACCESS_DENIED: {_first_line(error)}") from None
    except BaseError as error:
        raise ConnectionError(_first_line(error)) from None
    return True


@cache
def _bucket(address: str, bucket: str, region: str | None) -> Any:
    parts = urlsplit(address)
    options = {"region": region} if region else {}
    options |= {name: values[-1] for name, values in parse_qs(parts.query).items()}
    match parts.scheme:
        case "s3":
            return _s3(bucket, options)
        case "gs" | "gcs":
            return GCSStore(bucket, retry_config=_RETRIES)
        case "abfs" | "abfss":
            account = parts.hostname.split(".")[0] if parts.hostname and "." in parts.hostname else None
            account = account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") or os.environ.get("AZURE_STORAGE_ACCOUNT")
            return AzureStore(bucket, account_name=account, retry_config=_RETRIES)
    raise WrongStoreError(
        f"{address}: sweeps can't be run on this kind of storage; use a folder, s3://, gs:// or abfs://"
    )


def _s3(bucket: str, options: dict[str, str]) -> S3Store:
    """The bucket with the options of pyarrow's addresses, such as `?endpoint_override=host:9000&scheme=http`."""
    scheme, endpoint = options.get("scheme", "https"), options.get("endpoint_override")
    config: dict[str, Any] = {"retry_config": _RETRIES}
    if endpoint:
        config["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        config["client_options"] = {"allow_http": config["endpoint"].startswith("http://")}
    if region := options.get("region"):
        config["region"] = region
    return S3Store(bucket, **config)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
