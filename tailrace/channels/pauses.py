"""Pauses and resumes the mirror, publishing, or a channel. A pause stays until it is lifted, whatever restarts.

It is kept where the part that obeys it finds it: in the relay directory, in the downstream's schema ``tailrace``, or in
the folder of change files.
"""

from __future__ import annotations

from typing import Literal

from relay_store.layout.directory import check_here
from relay_store.layout.pauses import set_pause
from spark_consumer.apply.tables import channel_pauses, channel_tables, position_store
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import closing, connect
from tailrace.channels.files import files_channels
from tailrace.config.addresses import files_target, target_url
from tailrace.config.model import Config

#: what can be paused
Pausable = Literal["mirror", "publishing", "channel"]


def set_paused(config: Config, part: Pausable, paused: bool, channel: str | None = None) -> None:
    """Pause or resume a part. It takes effect at the next boundary: a transaction group, an epoch, or a batch.

    Args:
        channel: for a channel: its name; default: the one of ``[consumer]``.

    Raises:
        RelayError: TR340, the relay directory is not on this machine; TR311, it is another prefix's.
        DownstreamError: TR612, neither the configuration nor the target has the channel.
    """
    if part == "channel":
        _set_channel(config, channel or config.consumer.channel, paused)
    else:
        check_here(config.relay.dir, config.kafka.prefix)
        set_pause(config.relay.dir, part, paused)


def _set_channel(config: Config, name: str, paused: bool) -> None:
    own, key = config.for_channel(name), ChannelKey(config.kafka.prefix, name)
    if (files := files_target(own)) is not None:
        from spark_consumer.sinks.parquet.folder import set_pause as set_folder_pause

        if not any(found["channel"] == name for found in files_channels(files)):
            raise position_store.unknown_channel(key)
        set_folder_pause(files, paused)
        return
    with closing(connect(target_url(own))) as session:
        channel_tables.install(session)
        is_known = name in (config.consumer.channel, *config.channel)
        if not is_known and position_store.read(session, key) is None:
            raise position_store.unknown_channel(key)
        (channel_pauses.pause if paused else channel_pauses.resume)(session, key)
