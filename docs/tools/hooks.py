"""MkDocs calls these functions: they add the generated reference pages and the pages of `cluster/deploy`."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.tools.pages import ROOT
from docs.tools.reference import reference_pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in (reference_pages() | deploy_pages()).items():
        files.append(File.generated(config, path, content=text))
    return files


def deploy_pages() -> dict[str, str]:
    """The pages beside the deployment files; pip installs them with these files, so they stay there."""
    folder = ROOT / "cluster" / "deploy"
    return {f"guides/deploy/{page.name}": page.read_text() for page in sorted(folder.glob("*.md"))}
