"""Products that the threads of a block compute together, as statements: ``block_products`` has the
loops, the order of copies, barriers and multiply-adds, and the epilogue; ``block_operands`` where
each element comes from; ``block_steps`` the names and the block's memory; ``single_rows`` products
of one row.
"""
