"""Fetches an exporter's page, within a deadline and a size."""

from __future__ import annotations

import asyncio

import aiohttp

from robustrl.node.exposition import BadExposition, Page, parse
from robustrl_api.errors import describe

SCRAPE_SECONDS = 5.0
MAX_PAGE_BYTES = 4 * 1024 * 1024
"""A node of 8 GPUs with every field there is comes to a tenth of it."""


class ExporterGone(Exception):
    """Nothing listens at the exporter's address: it has ended, or is being started."""


class ScrapeFailed(Exception):
    """The exporter is there and gave no page that can be read."""


async def scrape(session: aiohttp.ClientSession, url: str) -> Page:
    """The page that the exporter shows now.

    Raises:
        ExporterGone: nobody answers at that address.
        ScrapeFailed: the answer is late, too long, an error or not an exporter's.
    """
    try:
        async with asyncio.timeout(SCRAPE_SECONDS):
            # Off the loop: a long page takes the parser a while.
            return await asyncio.to_thread(parse, await _fetch(session, url))
    except BadExposition as error:
        raise ScrapeFailed(f"{url}: {error}") from error
    except TimeoutError as error:
        raise ScrapeFailed(f"{url}: no page within {SCRAPE_SECONDS:.0f} s") from error
    except (aiohttp.ClientConnectorDNSError, aiohttp.ClientConnectorCertificateError) as error:
        raise ScrapeFailed(f"{url}: {error}") from error
    except aiohttp.ClientConnectorError as error:
        raise ExporterGone(f"{url}: {error}") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise ScrapeFailed(f"{url}: {describe(error)}") from error


async def _fetch(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as response:
        if response.status != 200:
            raise ScrapeFailed(f"{url}: status {response.status}")
        body = await response.content.read(MAX_PAGE_BYTES + 1)
        while len(body) <= MAX_PAGE_BYTES and (more := await response.content.read(MAX_PAGE_BYTES + 1 - len(body))):
            body += more
    if len(body) > MAX_PAGE_BYTES:
        raise ScrapeFailed(f"{url}: the page is longer than {MAX_PAGE_BYTES} bytes")
    return body.decode()
